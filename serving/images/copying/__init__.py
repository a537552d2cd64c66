"""The program of the init container that copies a model's files from its registry into the Pod's volume."""
