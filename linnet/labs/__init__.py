"""The laboratory: claims of the papers, recall and in-context studies, benchmarks and reports.

It may import every other folder of linnet; no other folder imports it, and everything else works without it.
"""
