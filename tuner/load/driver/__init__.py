"""What runs inside a process of locust, and nowhere else: importing locust patches the whole process.

One process is one core's worth of load. Several are several locusts, each with its share of the users or of the rate: their
samples meet in ours, unrounded, which locust's own master could not give.
"""
