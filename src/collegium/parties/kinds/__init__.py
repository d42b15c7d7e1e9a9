"""How a party answers each kind of question of this package: one file for each, imported by `kind.party_kinds`."""
