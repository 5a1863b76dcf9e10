"""Pictures of collectives: their steps in text, as a film strip and as a page that plays."""
