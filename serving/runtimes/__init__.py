"""Model servers that we ship."""
