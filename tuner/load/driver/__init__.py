"""The code that runs in locust processes, and only there: importing locust patches the whole process.

One process makes one core's worth of load and has a share of the users or the rate. The parent merges the
records.
"""
