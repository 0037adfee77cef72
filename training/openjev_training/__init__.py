"""Training of the embedded checkpoint: warm start, data, packed training, quantisation and honest measurement."""
