"""Keeps other clusters from harm, and the network in place until the last node has gone."""
