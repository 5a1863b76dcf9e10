"""Mixture of experts over a mesh: token dispatch, the experts' products, and the combine that sends answers back."""
