"""What an image consists of: its layers, its JSON documents and its signatures. Pure: bytes in, bytes out."""
