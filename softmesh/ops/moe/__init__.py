"""Mixture of experts on one device: gates, sparse products, sums, and how the experts' weights are packed."""
