# The ranks of one leaf follow each other: a ring over all nodes crosses between leaves as rarely as can be.
cluster {
  node "n" {
    count  = 7
    fanout = { leaf = 3 }
  }
}
gang "ring" {
  gpus     = 56
  duration = "10s"
}
