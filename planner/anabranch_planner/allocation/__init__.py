"""How limited CPU is divided among probes: which are made while there is too little for all."""
