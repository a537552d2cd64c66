"""What a gateway serves: services made from Routes and EndpointSlices, and who has which address.

Pure; knows nothing of Envoy.
"""
