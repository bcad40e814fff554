"""The leader's work: plans of epochs, cost constants, rations, removal of queries long ended."""
