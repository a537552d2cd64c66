"""The route plan: services from Routes and EndpointSlices, and the owners of addresses.

Pure, and independent of Envoy.
"""
