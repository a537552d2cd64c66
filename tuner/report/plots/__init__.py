"""The plots of the page, one module for each section."""
