"""softmax(q k^T) v in TT-NN's forms: whole sequences, chunks of them, one new token of each user, chosen keys only."""
