# Segments of four ranks are not split over leaves of five nodes, though filling the leaves would need fewer.
cluster {
  node "n" {
    count  = 15
    fanout = { leaf = 5 }
  }
}
gang "train" {
  gpus     = 96
  duration = "30s"
  topology {
    segment = 4
  }
}
