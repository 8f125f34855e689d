"""The whole road on a laptop: deploy, train, publish, roll out, predict, destroy."""
