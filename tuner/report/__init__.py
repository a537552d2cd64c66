"""What an experiment found, for people: as JSON, as sentences, as one page. Pure: it takes objects and `now`, and writes nothing."""
