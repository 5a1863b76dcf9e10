"""Safe readers for files that users hand in: bounded text and YAML, whose values and errors know their lines."""
