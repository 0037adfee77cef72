"""Agreement with Jev: fixtures, metrics, reports, a recorder and a shadow proxy."""
