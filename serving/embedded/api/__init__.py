"""The API server: FastAPI over SQLite."""
