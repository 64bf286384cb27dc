"""Three services, one order: placed, paid, shipped. Or refused, and its stock given back."""
