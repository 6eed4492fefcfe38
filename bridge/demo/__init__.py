"""The demo: a real data set through two real nodes, a cut and two kills, and the proof.

`rows` reads the input, `nodes` runs an edge and a hub as processes, `proxy` is the link between them,
`traffic` sends, `faults` breaks, `compare` judges, and `story` plays it all.

What "in order" means here. Odd rows go in transactions of 100, one after the other, by one client: at the
hub they must stand in file order. Even rows go one POST each, by 32 clients side by side, as real producers
do (a single client would mostly wait for the disk): each client's rows must stand in file order. And as the
edge's answers name the positions of the rows they stored, the hub's order is held against the edge's order,
over all rows.
"""
