"""Pictures of collective schedules: their steps in text, as a film strip (SVG) and as an animated web page."""
