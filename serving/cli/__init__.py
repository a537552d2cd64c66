"""The only place that prints or exits."""
