"""The scikit-learn runtime."""
