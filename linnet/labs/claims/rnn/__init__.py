"""Claims of "Transformers are RNNs" (Katharopoulos et al. 2020, arXiv:2006.16236)."""
