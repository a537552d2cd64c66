"""HTML pages that need nothing else: drawing, numbers for people, style and script. The tuner's and the
autoscaler's reports are such. Pure.
"""
