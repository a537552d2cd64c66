"""Discovery of groups, versions and kinds, and their OpenAPI documents."""
