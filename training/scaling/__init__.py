"""How training scales: a report of finished runs, and an estimate of runs to come."""
