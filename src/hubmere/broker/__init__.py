"""Every decision, without waiting: who may, how much, which partition, who reads next."""
