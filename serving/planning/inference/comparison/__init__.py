"""Whether the stored objects of an Inference equal the desired ones, however they were written. Pure."""
