cluster {
  node "n" {}
}
tier "production" {
  priority  = -1
  preempts  = ["background", "silver"]
  grace     = "ten seconds"
  min_share = 1.5
}
tier "gold" {
  protected = "1m"
}
tier "gold" {
  priority = 1
}
tenant "acme" {
  weight     = 0
  guaranteed = -8
  max_gpus   = 0
}
tenant "acme" {
  weight = 1
}
fairness {
  half_life                   = 3600
  preemption_plans_per_minute = 0.5
}
model "wan" {
  load  = "-40s"
  speed = { "A100-80GB" = "slow" }
}
