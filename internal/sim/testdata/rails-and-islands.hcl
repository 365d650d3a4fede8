# On each node another GPU of the first island is bad. Both members sit in the second one: the same rails on both nodes, and full NVLink
# bandwidth.
cluster {
  node "n" {
    count  = 2
    fanout = { leaf = 2 }
    nvlink = [[0, 1, 2, 3], [4, 5, 6, 7]]
  }
}
gang "pair" {
  at            = "2s"
  gpus          = 8
  gpus_per_node = 4
  duration      = "10s"
}
event {
  at   = "1s"
  kind = "gpu_bad"
  node = "n-0"
  gpu  = 0
}
event {
  at   = "1s"
  kind = "gpu_bad"
  node = "n-1"
  gpu  = 3
}
