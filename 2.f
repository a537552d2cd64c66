END rounds=10845 binds=0 listens=0 answers=0
