"""Mixture of experts on one device: gates, routed experts, and how the experts' weights are packed and placed."""
