"""What an Inference needs next: revisions, the hash ring, its children and its status. Pure."""
