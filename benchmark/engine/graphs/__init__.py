"""Sets of graphs: minibatches, graph classification, clustering."""
