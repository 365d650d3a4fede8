# Interactive gangs that come later move the start of a wide production gang, and it says so. Production gangs that would move it
# further wait.
cluster {
  node "n" {
    count  = 2
    fanout = { leaf = 2 }
  }
}
tier "interactive" {
  target_wait = "60s"
}
gang "base" {
  count       = 2
  gpus        = 8
  duration    = "100s"
  preemptible = false
}
gang "wide" {
  at       = "5s"
  gpus     = 16
  duration = "30s"
}
gang "young" {
  at       = "10s"
  gpus     = 8
  duration = "500s"
}
gang "chat" {
  at       = "70s"
  tier     = "interactive"
  gpus     = 8
  duration = "50s"
}
