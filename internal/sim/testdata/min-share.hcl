# Production alone would take all four nodes for good. A quarter is promised to the background tier, and it gets that.
cluster {
  node "n" {
    count  = 4
    fanout = { leaf = 4 }
  }
}
tier "background" {
  min_share = 0.25
}
gang "prod" {
  count    = 60
  every    = "7s"
  gpus     = 8
  duration = "30s"
}
gang "back" {
  count    = 40
  at       = "30s"
  tier     = "background"
  gpus     = 1
  duration = "30s"
}
