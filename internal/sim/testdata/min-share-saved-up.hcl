# A background gang is wider than what its tier is promised. It starts once the tier has saved up for it.
cluster {
  node "n" {
    count  = 5
    fanout = { leaf = 5 }
  }
}
tier "production" {
  preempts = []
}
tier "background" {
  min_share = 0.2
}
gang "prod" {
  count    = 80
  every    = "5s"
  gpus     = 8
  duration = "30s"
}
gang "wide" {
  at       = "20s"
  tier     = "background"
  gpus     = 16
  duration = "30s"
}
