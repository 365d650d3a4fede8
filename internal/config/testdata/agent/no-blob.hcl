name = "a"
