"""Load shedding: rations (shares of tuples that probe), and catch-up of withheld results."""
