"""The parts of an image: layers, JSON documents and signatures. Pure: bytes in, bytes out."""
