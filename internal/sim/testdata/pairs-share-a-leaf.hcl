# The second single goes to the leaf of the first, though every leaf has room: the other two leaves stay whole, and the gangs that
# need a whole one start at once.
cluster {
  node "n" {
    count  = 6
    fanout = { leaf = 2 }
  }
}
gang "one" {
  gpus     = 8
  duration = "500s"
}
gang "two" {
  at       = "5s"
  gpus     = 8
  duration = "500s"
}
gang "whole" {
  count    = 2
  at       = "10s"
  gpus     = 16
  duration = "50s"
  topology {
    require = "leaf"
  }
}
