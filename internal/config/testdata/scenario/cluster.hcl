cluster {
  levels = ["spine", "leaf"]
  node "a" {
    count  = 2
    gpus   = 4
    nvlink = [[0, 1], [2, 4]]
    at     = { rack = "r0", leaf = "l0" }
    fanout = { leaf = 4, row = 2 }
  }
  node "a" {
    count  = 0
    gpus   = 65
    nvlink = [[0, 0]]
  }
  node "a-1" {
    nvlink = [0, 1]
    at     = "l0"
    spot   = "yes"
    warm   = "wan"
  }
  node "b c" {
    fanout = { leaf = 0 }
    memory = "80GiB"
  }
}
cluster {
}
