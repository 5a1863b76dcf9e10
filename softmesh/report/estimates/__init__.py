"""An estimate in the tools that users have: Perfetto, TT-NN Visualizer, tt-perf-report, and a page of its own."""
