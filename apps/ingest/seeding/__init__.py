"""A realistic population of traces, straight into the store: for benches, and to look at pages.

`steps` makes a stock of pieces of work with their payloads, `traces` puts them together to trees,
`loading` writes those by `COPY`, settled. The same seed gives the same population.
"""
