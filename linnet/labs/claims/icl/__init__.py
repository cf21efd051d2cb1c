"""Claims of "Linear Transformers are Versatile In-Context Learners" (Vladymyrov et al. 2024, arXiv:2402.14180)."""
