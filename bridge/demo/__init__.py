"""The demo: a real data set through two real nodes, a cut and two kills, and the proof.

`rows` reads the input, `nodes` runs an edge and a hub as processes, `proxy` is the link between them,
`traffic` sends, `faults` breaks, `compare` judges, and `story` plays it all.

The meaning of "in order" here: odd rows go in transactions of 100, one after the other, by one client: at the
hub they must be in file order. Even rows go one POST each, by 32 parallel clients, as real producers do (a
single client would mostly wait for the disk): each client's rows must be in file order. And as the edge's
answers name the positions of the rows they stored, the hub's order is compared with the edge's order, over
all rows.
"""
